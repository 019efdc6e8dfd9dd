"""Metrics of runs in other tools: TensorBoard, MLflow, W&B. One file each, fed after commit by `manage.py mirror`."""
