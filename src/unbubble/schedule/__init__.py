"""Schedules: order and placement, their CSV, their proof, their lowering."""

from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement
from unbubble.schedule.pytorch_csv import format_csv, parse_csv

__all__ = ["Placement", "Schedule", "format_csv", "parse_csv"]
