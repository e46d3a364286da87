"""octavo on a Ray cluster: quantize a checkpoint by many tasks, evaluate a text a task.

    import octavo.ray

    report = octavo.ray.quantize("/shared/model", "/shared/out", "nvfp4")
    seen = octavo.ray.evaluate("/shared/out", texts, against="/shared/model")

Needs ray (pip install octavo[ray]) and storage that all nodes see under the same names. Tasks send
no values to each other: Ray starts them, starts them again where a node is lost, and carries their
progress and reports. The bytes and numbers are those of octavo.quantize_checkpoint and
octavo.evaluate.
"""

from octavo.ray._evaluate import evaluate
from octavo.ray._quantize import quantize

__all__ = ["evaluate", "quantize"]
