"""Packing: orders made to fit given times and a memory limit, from an order of F and I alone."""
