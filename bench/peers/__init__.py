"""What users would take instead, each as they would use it from Python."""
