"""What dmlc exchanges with other tools."""
