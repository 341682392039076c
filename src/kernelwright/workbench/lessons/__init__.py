"""The machine in ten lessons: `kernelwright learn`.

A lesson is a folder: lesson.md (text, and the questions), kernels that the text includes, and
measure.py, whose function `measure` runs on any machine and returns the tables and the picture that
the text shows.

    lesson.py      reads a lesson's text
    tables.py      the results of a measurement
    launching.py   runs the kernels of a lesson: counted in the emulator, timed on a GPU
    recorded.py    figures of the shipped records
    run.py         runs a lesson and checks answers to its questions
    quiz.py        the questions of quiz.toml
    language.py    the lessons' languages; zh.toml has the words of tables and pictures in Chinese
    chapters.py    lessons and exercises that match chapters of the book, lectures and interview
                   questions, from chapters.toml
"""
