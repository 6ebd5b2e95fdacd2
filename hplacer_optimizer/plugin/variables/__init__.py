"""TensorFlow 2 variables on planned devices: models that are too large for one device.

plan_model(model_fn, step_fn, specs)  --symbolic, tracing-->  the step without its variables
      |                                                                |
      v                                                loaders, planning: variables may move
ModelPlan  <---- a device per variable, and the step's plan <----------+
      |
variable_scope(plan)   creates variables there
migrate(model, optimizer, plan)   moves those of an existing model
"""

from __future__ import annotations

from hplacer_optimizer.plugin.variables.migration import migrate
from hplacer_optimizer.plugin.variables.model_plan import ModelPlan, PlannedVariable
from hplacer_optimizer.plugin.variables.model_planning import plan_model
from hplacer_optimizer.plugin.variables.scope import variable_scope

__all__ = ["ModelPlan", "PlannedVariable", "migrate", "plan_model", "variable_scope"]
