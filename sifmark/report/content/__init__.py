"""The parts of a report in the order of its page: notices, answers, summary, sections, systems, appendix."""
