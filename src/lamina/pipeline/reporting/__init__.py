"""What the report is made of.

buckets     how wide the steps of time are            tally       numbers that add up, in whatever order
jobs        the lives of jobs, told by their log      messages    and those of messages in queues
counting    what needs no memory: topics, the store   facts       all of that, in tasks and together
disk        bytes by what they are                    plots       pictures (SVG) of numbers
sections    which pictures and tables there are       page        one file of HTML that needs no other
"""
