"""What a report has beside its page: the same numbers for papers, spreadsheets and programs, and what they rest on."""
