"""Pages and API of runs. (Starting one: `composer_web.runs.launch`.)"""
