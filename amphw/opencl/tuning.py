from amphw.opencl.platforms import default_form
def tuned_form(found): return default_form(found)
