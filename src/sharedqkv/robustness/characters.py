"""Tables of the text noises: slips on a keyboard, misreadings by OCR, punctuation, and words that are left alone."""

NEIGHBOURS = {
    "q": "wa", "w": "qeas", "e": "wrsd", "r": "etdf", "t": "ryfg", "y": "tugh", "u": "yihj", "i": "uojk",
    "o": "ipkl", "p": "ol", "a": "qwsz", "s": "weadzx", "d": "ersfxc", "f": "rtdgcv", "g": "tyfhvb",
    "h": "yugjbn", "j": "uihknm", "k": "iojlm", "l": "opk", "z": "asx", "x": "sdzc", "c": "dfxv", "v": "fgcb",
    "b": "ghvn", "n": "hjbm", "m": "jkn",
}  # fmt: skip
"""Letter → the letters around it on a QWERTY keyboard."""

CONFUSIONS = {
    "rn": ("m",), "cl": ("d",), "ri": ("n",), "li": ("h",), "vv": ("w",), "nn": ("m",), "ii": ("u",),
    "a": ("o", "e"), "b": ("h", "6"), "c": ("e", "o"), "d": ("cl",), "e": ("c", "o"), "f": ("t",), "g": ("q", "9"),
    "h": ("b", "li"), "i": ("l", "j", "1"), "j": ("i",), "k": ("lc",), "l": ("1", "I", "i"), "m": ("rn", "nn"),
    "n": ("u", "ri"), "o": ("0", "c"), "p": ("n",), "q": ("g",), "r": ("n",), "s": ("5",), "t": ("f", "l"),
    "u": ("n", "ii"), "v": ("y",), "w": ("vv",), "x": ("z",), "y": ("v",), "z": ("2",),
    "A": ("4",), "B": ("8", "E"), "C": ("G", "O"), "D": ("O",), "E": ("F", "B"), "F": ("P",), "G": ("6", "C"),
    "H": ("N",), "I": ("l", "1"), "J": ("I",), "K": ("X",), "L": ("I",), "M": ("N",), "N": ("M",), "O": ("0", "Q"),
    "P": ("F",), "Q": ("O",), "R": ("B",), "S": ("5", "8"), "T": ("7", "I"), "U": ("V",), "V": ("U",),
    "W": ("VV",), "X": ("K",), "Y": ("V",), "Z": ("2",),
}  # fmt: skip
"""One or two letters → what OCR takes them for."""

PUNCTUATION = ".,;:!?\"'`()[]{}-–—…“”„‘’«»¿¡،؛؟।、。，！？；：（）「」『』"

APOSTROPHES = "'’‘`´"

NEGATIONS = (
    "no", "not", "non", "nor", "none", "never", "nobody", "nothing", "nowhere", "neither", "nope", "nay", "cannot",
    "without", "unless", "except", "hardly", "barely", "scarcely", "rarely", "seldom",
    "lack", "lacks", "lacked", "lacking",
    "aint", "arent", "cant", "couldnt", "didnt", "doesnt", "dont", "hadnt", "hasnt", "havent", "isnt", "mustnt",
    "neednt", "shouldnt", "wasnt", "werent", "wont", "wouldnt",
)  # fmt: skip
"""Besides all that end in n't."""
