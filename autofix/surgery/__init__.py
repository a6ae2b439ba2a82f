"""What strategies are written with: modules, fx graphs, source text, ONNX graphs."""
