"""How long a thread waits in collectives, measured where torch waits for them. One module for each
place; ``waits`` adds it up, ``session`` puts them in and takes them out."""
