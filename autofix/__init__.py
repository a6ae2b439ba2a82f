"""autofix repairs PyTorch models that will not become good ONNX models, and proves it."""
