"""Monitor: a running job's live records, step by step, as lines, JSON and Prometheus metrics."""

from unbubble.monitor.follower import Follower, Ready
from unbubble.monitor.summary import summary

__all__ = ["Follower", "Ready", "summary"]
