"""A site of reports: static pages of the results of many studies, dates, devices and workloads."""
