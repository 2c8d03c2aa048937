"""Layers to stages, exactly."""
