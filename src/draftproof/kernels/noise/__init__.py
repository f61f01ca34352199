"""Noise with an address: the same (seed, position, token id) gives the same number everywhere and always.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011), a function from a 128-bit counter and a 64-bit key to four 32-bit words::

    key     = (seed's low 32 bits, seed's high 32 bits)
    counter = (token id >> 2, position's low 32 bits, position's high 32 bits, stream)
    word    = philox(counter, key)[token id & 3]
    uniform = ((word >> 9) + 0.5) * 2^-23          float32, never 0 and never 1
    gumbel  = -log(-log(uniform))                  float32

``stream`` keeps uses apart: token choice has one, and any other use of noise must take another.
"""
