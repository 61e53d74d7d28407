"""Fitting a map: MMD regression, log-ratio regression, distillation."""

from amsip.training.config import FitConfig as FitConfig
from amsip.training.engine import fit_map as fit_map
from amsip.training.log import TrainLog as TrainLog
from amsip.training.losses import Distillation as Distillation
from amsip.training.losses import LogRatio as LogRatio
from amsip.training.losses import SquaredDiscrepancy as SquaredDiscrepancy
from amsip.training.tasks import ReferenceTasks as ReferenceTasks
from amsip.training.tasks import StreamTasks as StreamTasks
from amsip.training.tasks import Task as Task
