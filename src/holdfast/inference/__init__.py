"""From wreckage to suspects: what the `recognise` faces of several faults share. Pure.

blame         who tells of his own trouble, who only of others', who says nothing
own_trouble   a rank's own trouble, told apart from what it says of others
suspicion     whom the others waited for, when nobody tells of any trouble
meeting       ranks of one group that were not in the same collective
fingerprints  collectives compared by torch itself (TORCH_DISTRIBUTED_DEBUG=DETAIL)
memory_kills  who was killed for memory, as the kernel and schedulers tell it
allocator     the numbers in 'CUDA out of memory'
damage        what is wrong with a file that could not be loaded
xids          the numbers of NVIDIA's driver in the kernel log
sighted       small questions to lines that were seen
"""
