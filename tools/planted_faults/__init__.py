"""Plants faults in right CUDA programs by seeded rules, and counts those that the checks find.

    python -m tools.planted_faults --seed 2121 --each 24 --corpus tests/fixtures/right DIR \\
        --write docs/planted_faults.json

rules.py has the rules, places.py finds where they apply, trials.py runs a program, `__main__.py`
draws the sample and writes the record. A corpus is a folder of `.cu` files, each a right program,
or a folder with `programs.json` and each repository's files at its commit in OWNER+NAME/. The
`programs.json` of this folder lists public programs, their arguments and edits of their sizes.
"""
