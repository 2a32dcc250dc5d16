"""The lane engine: matrix-vector products, gradients and updates of the parameters it keeps."""
