"""What every package uses: errors, paths, settings, schemas, files, locks, console, processes, git and keys."""
