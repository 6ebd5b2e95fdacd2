"""The published planner: Grouper and Placer as networks, trained by REINFORCE.

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), sections 3 and 4.1:

    Grouper   feed-forward, a softmax over the groups for each unit
    Placer    sequence to sequence: a bidirectional LSTM over the groups, an LSTM with attention
              (Luong) that emits a device per group, each given the last one
    reward    -sqrt(step time), over its moving average; Adam; gradients clipped by their norm

With `table_rate` a free logit per choice is added to those of the networks, and the Grouper's begin
near clusters of the graph: what the published form lacks (docs/results/learning.md).

Differences from the paper: what is grouped is a unit, since TensorFlow wants its ops together;
devices where nothing of a group may run are masked; a unit that may not run where its group is goes
to the fastest device where it may. U units, G groups, m devices, R placements of one grouping.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask, first_candidate
from hplacer_optimizer.planners.learning.groups import slowness
from hplacer_optimizer.planners.learning.scoring import Scores
from hplacer_optimizer.planners.learning.settings import NetworkSettings

_OUTPUTS, _NEIGHBOURS = 4, 6  # in an embedding: the largest outputs, neighbours in each direction
_NEVER = -1e9  # a logit
_AT_HOME = 8.0  # the first logit of a unit's cluster, with tables

_Float32 = NDArray[np.float32]
_Int32 = NDArray[np.int32]


class Networks:
    """A policy: `draw` a batch, then `learn` from its scores."""

    def __init__(self, problem: Problem, settings: NetworkSettings, seed: int) -> None:
        keras.utils.set_random_seed(seed % (1 << 32))
        self._settings, self._problem = settings, problem
        self._rng = np.random.default_rng(seed % (1 << 64))
        self._mask = candidate_mask(problem)
        self._fallback = first_candidate(problem, np.argsort(slowness(problem)).tolist())
        self._units = _Embedding(problem)
        self._grouper = _Grouper(problem, self._units.of_units, settings)
        self._placer = _Placer(problem.num_devices, settings)
        self._networks = keras.optimizers.Adam(settings.learning_rate)
        self._tables = keras.optimizers.Adam(max(settings.table_rate, 1e-9))
        self._baseline: float | None = None
        self._slowest_s = 0.0
        self._entropy = 0.0
        self._batch: dict[str, Any] = {}
        self._update = tf.function(self._update_with, autograph=False)
        self._sample = tf.function(self._placer.sample)
        self.draw()  # which makes the variables
        self._networks.build(self._weights())
        self._tables.build(self._free_logits())

    @property
    def facts(self) -> dict[str, float]:
        """What to watch beside step times."""
        return {"placer_entropy": self._entropy}

    def draw(self) -> _Int32:
        """Placements of one grouping, int32[R, n]."""
        logits = self._grouper.logits().numpy()
        grouping = (logits + self._rng.gumbel(size=logits.shape)).argmax(axis=1).astype(np.int32)
        may_run = np.zeros((self._settings.groups, self._problem.num_devices), np.bool_)
        np.logical_or.at(may_run, grouping, self._mask)
        may_run[~may_run.any(axis=1)] = True
        embedding = self._units.of_groups(grouping, self._settings.groups)
        shape = (self._settings.batch, *may_run.shape)
        noise = self._rng.gumbel(size=shape).astype(np.float32)
        devices = self._sample(embedding[None], noise, may_run).numpy()
        self._batch = {
            "grouping": tf.constant(grouping),
            "embedding": tf.constant(embedding[None]),
            "may_run": tf.constant(may_run),
            "devices": tf.constant(devices),
        }
        per_unit = devices[:, grouping]
        allowed = self._mask[np.arange(len(grouping)), per_unit]
        placed: _Int32 = np.where(allowed, per_unit, self._fallback)[:, self._problem.units]
        return placed.astype(np.int32)

    def learn(self, scores: Scores) -> None:
        """From the scores of the last batch."""
        settings = self._settings
        known = scores.seconds[scores.feasible]
        self._slowest_s = max([self._slowest_s, *known.tolist()])
        failing_s = settings.failing_factor * (self._slowest_s or 100.0)
        reward = -np.sqrt(np.where(scores.feasible, scores.seconds, failing_s))
        mean = float(reward.mean())
        before = mean if self._baseline is None else self._baseline
        self._baseline = settings.baseline_decay * before + (1 - settings.baseline_decay) * mean
        advantages = (reward - before).astype(np.float32)
        self._entropy = float(self._update(**self._batch, advantages=advantages))

    def _update_with(
        self, grouping: Any, embedding: Any, may_run: Any, devices: Any, advantages: Any
    ) -> Any:
        with tf.GradientTape() as tape:
            log_groups = tf.nn.log_softmax(self._grouper.logits())
            of_grouping = tf.reduce_sum(tf.gather(log_groups, grouping, batch_dims=1))
            log_devices = self._placer.log_chances(embedding, devices, may_run)
            of_devices = tf.reduce_sum(tf.gather(log_devices, devices, batch_dims=2), axis=1)
            gain = tf.reduce_mean(advantages * (of_devices + of_grouping))
            loss = -gain
        networks, tables = self._weights(), self._free_logits()
        gradients = tape.gradient(loss, [*networks, *tables])
        clipped, _ = tf.clip_by_global_norm(gradients[: len(networks)], self._settings.clip_norm)
        self._networks.apply_gradients(zip(clipped, networks, strict=True))
        if tables:
            self._tables.apply_gradients(zip(gradients[len(networks) :], tables, strict=True))
        return -tf.reduce_mean(tf.reduce_sum(tf.exp(log_devices) * log_devices, axis=2))

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Facts for JSON and arrays, on which all further draws depend."""
        facts = {
            "rng": self._rng.bit_generator.state,
            "baseline": self._baseline,
            "slowest_s": self._slowest_s,
        }
        return facts, {f"variable_{i}": v.numpy() for i, v in enumerate(self._variables())}

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on where `save` was called."""
        self._rng.bit_generator.state = facts["rng"]
        self._baseline, self._slowest_s = facts["baseline"], facts["slowest_s"]
        for i, variable in enumerate(self._variables()):
            variable.assign(arrays[f"variable_{i}"])

    def _weights(self) -> list[Any]:
        return [*self._grouper.network.trainable_variables, *self._placer.trainable_variables]

    def _free_logits(self) -> list[Any]:
        return [self._grouper.table, self._placer.table] if self._settings.table_rate else []

    def _variables(self) -> list[Any]:
        optimizers = [*self._networks.variables, *self._tables.variables]
        return [*self._weights(), *self._free_logits(), *optimizers]


class _Grouper:
    """Logits of the groups of each unit."""

    def __init__(self, problem: Problem, embedding: _Float32, settings: NetworkSettings) -> None:
        self._embedding = tf.constant(embedding)
        self.network = keras.Sequential(
            [
                keras.Input((embedding.shape[1],)),
                keras.layers.Dense(settings.grouper_hidden, activation="tanh"),
                keras.layers.Dense(settings.groups),
            ]
        )
        first = np.zeros((1, 1), np.float32)
        if settings.table_rate:
            (cluster,) = _engine.cluster_units(problem, [settings.groups], 2)
            home = np.minimum(cluster, settings.groups - 1)
            first = np.zeros((problem.num_units, settings.groups), np.float32)
            first[np.arange(len(home)), home] = _AT_HOME
        self.table = tf.Variable(first)

    def logits(self) -> Any:
        """float[U, G]."""
        return self.network(self._embedding) + self.table


class _Placer:
    """Devices of groups, one after the other."""

    def __init__(self, num_devices: int, settings: NetworkSettings) -> None:
        size, layers = settings.placer_hidden, keras.layers
        self._settings, self._num_devices = settings, num_devices
        half = layers.LSTM(size // 2, return_sequences=True, return_state=True)
        self._encoder = layers.Bidirectional(half)
        self._decoder = layers.LSTM(size // 2 * 2, return_sequences=True)
        self._previous = layers.Embedding(num_devices + 1, size)  # the last one: none yet
        self._attention = layers.Attention()
        self._combine = layers.Dense(size, activation="tanh")
        self._output = layers.Dense(num_devices)
        self.table = tf.Variable(tf.zeros((settings.groups, num_devices)))

    @property
    def trainable_variables(self) -> list[Any]:
        """Of the networks."""
        layers = (self._encoder, self._decoder, self._previous, self._combine, self._output)
        return [variable for layer in layers for variable in layer.trainable_variables]

    def sample(self, embedding: Any, noise: Any, may_run: Any) -> Any:
        """Draws int32[R, G], in order, with Gumbel noise float[R, G, m]."""
        rows, steps = tf.shape(noise)[0], tf.shape(noise)[1]
        states, h, c = self._encode(embedding, rows)
        device = tf.fill([rows], self._num_devices)
        chosen = tf.TensorArray(tf.int32, size=steps)
        for step in tf.range(steps):
            _, (h, c) = self._decoder.cell(self._previous(device), [h, c])
            logits = self._logits(h[:, None], states, may_run[step], self.table[step])
            device = tf.argmax(logits[:, 0] + noise[:, step], axis=1, output_type=tf.int32)
            chosen = chosen.write(step, device)
        return tf.transpose(chosen.stack())

    def log_chances(self, embedding: Any, devices: Any, may_run: Any) -> Any:
        """float[R, G, m]: of every device, given the devices int32[R, G] of the groups before."""
        rows = tf.shape(devices)[0]
        states, h, c = self._encode(embedding, rows)
        before = tf.concat([tf.fill([rows, 1], self._num_devices), devices[:, :-1]], axis=1)
        decoded = self._decoder(self._previous(before), initial_state=[h, c])
        return tf.nn.log_softmax(self._logits(decoded, states, may_run, self.table))

    def _encode(self, embedding: Any, rows: Any) -> tuple[Any, Any, Any]:
        """States of the groups float[R, G, size], and the decoder's first state."""
        states, h1, c1, h2, c2 = self._encoder(embedding)
        h, c = tf.concat([h1, h2], axis=1), tf.concat([c1, c2], axis=1)
        return (
            tf.repeat(states, rows, axis=0),
            tf.repeat(h, rows, axis=0),
            tf.repeat(c, rows, axis=0),
        )

    def _logits(self, decoded: Any, states: Any, may_run: Any, table: Any) -> Any:
        context = self._attention([decoded, states])
        output = self._output(self._combine(tf.concat([decoded, context], axis=2)))
        squashed = tf.tanh(output / self._settings.temperature)
        return tf.where(may_run, self._settings.tanh_constant * squashed + table, _NEVER)


class _Embedding:
    """What the networks see: op types, output sizes, neighbours."""

    def __init__(self, problem: Problem) -> None:
        units, count = problem.units, problem.num_units
        names, type_of_op = np.unique(np.array(problem.op_types), return_inverse=True)
        types = np.zeros((count, len(names)), np.float32)
        np.add.at(types, (units, type_of_op), 1)
        sizes = np.zeros((count, _OUTPUTS), np.float32)
        of_tensor = units[np.repeat(np.arange(problem.num_ops), np.diff(problem.output_ptr))]
        size_bytes = problem.output_bytes.astype(np.float32)
        order = np.lexsort((-size_bytes, of_tensor))
        _put_first(sizes, of_tensor[order], size_bytes[order])
        src, _, dst = problem.edges.T
        pairs = np.concatenate([np.stack([src, dst], axis=1), problem.control_edges])
        edges = np.unique(units[pairs].reshape(-1, 2), axis=0)
        self._edges = edges[edges[:, 0] != edges[:, 1]]
        self._counts = np.concatenate([types, sizes], axis=1)
        neighbours = np.zeros((2, count, _NEIGHBOURS), np.float32)
        for direction, (end, other) in enumerate(((0, 1), (1, 0))):
            order = np.lexsort((self._edges[:, other], self._edges[:, end]))
            positions = (self._edges[order, other] + 1) / max(count, 1)
            _put_first(neighbours[direction], self._edges[order, end], positions)
        self.of_units = np.concatenate([_logs(self._counts), *neighbours], axis=1)  # [U, width]

    def of_groups(self, grouping: _Int32, num_groups: int) -> _Float32:
        """float[G, width]: sums over the group, and with which groups it has edges."""
        sums = np.zeros((num_groups, self._counts.shape[1]), np.float32)
        np.add.at(sums, grouping, self._counts)
        adjacency = np.zeros((num_groups, num_groups), np.float32)
        adjacency[grouping[self._edges[:, 0]], grouping[self._edges[:, 1]]] = 1
        embedding: _Float32 = np.concatenate([_logs(sums), adjacency], axis=1)
        return embedding


def _put_first(table: NDArray[Any], row: NDArray[Any], values: NDArray[Any]) -> None:
    """Puts the first values of each row, which are given in order, into the table."""
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    first = rank < table.shape[1]
    table[row[first], rank[first]] = values[first]


def _logs(counts: _Float32) -> _Float32:
    """Of counts and bytes, of about the size of 1."""
    return (np.log1p(counts) / 10).astype(np.float32)
