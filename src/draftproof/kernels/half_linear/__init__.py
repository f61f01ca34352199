"""y = x W^T with W in half precision and x in float32, for the few rows of a decode step on a CPU.

A decode step reads every weight once and is bound by that. Half the bytes in a layout made for reading cost a
quarter of the time of torch's float32 product. Nothing is rounded on the way: the op takes only weights that
half precision holds exactly (`fits_half`), and it multiplies and adds in float32.
"""
