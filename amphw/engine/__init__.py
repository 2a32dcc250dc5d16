"""What devices that run whole graphs have in common: lowering, plans, tile code, and data planes.

`lower` turns a checked graph into units and paths, `tile` their programs into tile code, and `native/` serves
both: it plans instances, routes messages, schedules frames. Who computes a frame is the backend's business.
`numpy_plane/` does all of it in numpy.
"""
