"""Keeps what the stages of a training have found, beside the policy file that it will write."""

from __future__ import annotations

from pathlib import Path

from hplacer_optimizer.errors import PolicyError
from hplacer_optimizer.planners.policies import Portfolio, load_portfolio, save_portfolio
from hplacer_optimizer.training.evolution import Found


class Checkpoint:
    """A policy file per stage: `policies.yaml.stage0`, `policies.yaml.stage1`.

    Args:
        output: the file that the training will write.
        command: of the training; what another command has left is not read.
    """

    def __init__(self, output: Path, command: str) -> None:
        self._output, self._command = output, command

    def read(self) -> list[Found]:
        """What is there, from the first stage on."""
        found: list[Found] = []
        while (path := self._path(len(found))).exists():
            try:
                stage = load_portfolio(path)
                if stage.training.get("command") != self._command:
                    break
                generations = int(stage.training["generations"])
                seconds = float(stage.training["seconds"])
            except (PolicyError, KeyError, ValueError):
                break
            found.append(Found(policies=stage.policies, generations=generations, seconds=seconds))
        return found

    def add(self, found: Found, stage: int) -> None:
        """Keeps what a stage has found."""
        chains = tuple((policy, "units") for policy in range(len(found.policies)))
        training = {
            "command": self._command,
            "generations": str(found.generations),
            "seconds": f"{found.seconds:.1f}",
        }
        path = self._path(stage)
        save_portfolio(Portfolio(policies=found.policies, chains=chains, training=training), path)

    def remove(self) -> None:
        """Deletes it: the training is over."""
        stage = 0
        while (path := self._path(stage)).exists():
            path.unlink()
            stage += 1

    def _path(self, stage: int) -> Path:
        return self._output.with_name(f"{self._output.name}.stage{stage}")
