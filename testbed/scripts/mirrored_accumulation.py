"""Two replicas that add up gradients over two batches before they apply them."""

import json

import tensorflow as tf

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
ON_READ = tf.VariableSynchronization.ON_READ
SUM = tf.VariableAggregation.SUM
FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA
with strategy.scope():
    weights = [
        tf.Variable(tf.random.stateless_normal([6, 12], (1, 0)) * 0.4),
        tf.Variable(tf.random.stateless_normal([12, 1], (2, 0)) * 0.4),
    ]
    sums = [
        tf.Variable(tf.zeros_like(weight), False, synchronization=ON_READ, aggregation=SUM)
        for weight in weights
    ]
    batches = tf.Variable(0, False, dtype=tf.int64, aggregation=FIRST)
x = tf.random.stateless_normal([64, 6], (3, 0))
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
)


def accumulate(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2) / 32
    for total, gradient in zip(sums, tape.gradient(loss, weights), strict=True):
        total.assign_add(gradient)
    batches.assign_add(1)
    return loss


def apply():
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(
        tf.distribute.ReduceOp.SUM, [total.read_value() for total in sums]
    )
    for weight, total, gradient in zip(weights, sums, gradients, strict=True):
        weight.assign_sub(0.05 * gradient)
        total.assign(tf.zeros_like(total))


@tf.function
def train_step(x, y):
    losses = strategy.run(accumulate, args=(x, y))
    if batches % 2 == 0:
        strategy.run(apply)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for _ in range(2):
    for batch in data:
        print(json.dumps({"loss": float(train_step(*batch)), "batches": int(batches.read_value())}))
