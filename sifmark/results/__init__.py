"""Reading, comparing and summarising result documents."""
