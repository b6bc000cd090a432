"""The jobs, one file each: functions `DataFrame -> DataFrame`, and one thin `run`."""
