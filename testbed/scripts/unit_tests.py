"""Somebody's tests of their training code, under pytest with warnings as errors."""

import json
import logging
import sys

import pytest
import tensorflow as tf


@pytest.fixture
def weights():
    return tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)


@tf.function
def train_step(weights, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(x @ weights) @ tf.transpose(weights) - x) ** 2)
    weights.assign_sub(0.2 * tape.gradient(loss, weights))
    return loss


def test_the_loss_falls(weights):
    x = tf.random.stateless_normal([10, 6], (2, 0))
    losses = [float(train_step(weights, x)) for _ in range(4)]
    print(json.dumps({"losses": losses}))
    assert losses == sorted(losses, reverse=True)


def test_logs_nothing_above_info(weights, caplog):
    train_step(weights, tf.ones([3, 6]))
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("rows", [1, 2])
def test_fails_and_says_why(weights, rows):
    loss = float(train_step(weights, tf.zeros([rows, 6])))
    print(json.dumps({"rows": rows, "loss": loss}))
    with pytest.raises(ValueError, match="must be equal"):
        train_step(weights, tf.ones([rows, 5]))


if __name__ == "__main__":
    options = "-W error -s -q --noconftest -p no:randomly -p no:cacheprovider -c /dev/null"
    sys.exit(pytest.main([__file__, "--rootdir=.", *options.split()]))
