"""Reports: a page that answers the questions of a study, and beside it the files for a paper."""
