"""A FEW RANKS -> which layer fails: a small job, started as a careful person would.

    stages.py       the nouns: stages, records, the ladder of sizes and the sums it must give
    rank.py         one rank (the only file of holdfast that imports torch)
    member.py       one rank's process, from outside
    crew.py         all of them: started, heard, and ended
    endpoint.py     where the ranks meet: master address and port
    conduct.py      lets the ranks go from stage to stage, all together
    errno_words.py  what an error of the network or the kernel means
    roll.py         pure: records -> how far each rank came, and who is behind a failure
    judge.py        pure: records -> which stage failed, and why
    narrate.py      pure: the lines that tell how it goes

`stages` and `rank` import nothing but the standard library and torch: a rank must start
wherever torch does.
"""
