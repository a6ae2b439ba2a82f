"""Strategies of the onnx level."""
