# cython: language_level=3, binding=True, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Which values of a column Arrow's JSON reader would stumble over, in one pass and without making anything of them.

Arrow's reader gives all rows or none. A few bad records then cost a search; this finds them beforehand, at several times
the reader's speed. It decides nothing: whatever it doubts is read by the exact way, and where it overlooks something the
reader fails as before and the search follows. So it may doubt too much or too little, and no record means anything else.
One thing is relied on: what it does not doubt is one object, with nothing but space around it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

ctypedef const uint8_t* Text

cdef enum:
    DEPTH_MAX = 8192  # of what nobody looks at, a byte a level; Arrow follows deeper, and the exact way finds that out

cdef uint64_t EACH = 0x0101010101010101

cdef enum Kind:
    SKIPPED = 0
    BOOLEAN = 1
    INTEGER = 2
    FLOATING = 3
    DECIMAL = 4
    STRING = 5
    DATE = 6
    TIMESTAMP = 7
    TIMESTAMP_NTZ = 8
    BASE64 = 9
    ARRAY = 10
    STRUCT = 11

cdef dict KINDS = {
    "BOOLEAN": BOOLEAN, "INTEGER": INTEGER, "FLOATING": FLOATING, "DECIMAL": DECIMAL, "STRING": STRING, "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP_NTZ, "BASE64": BASE64, "ARRAY": ARRAY, "STRUCT": STRUCT,
}

cdef struct Node:
    int kind
    int size  # bits of a number, or digits of a decimal
    int scale
    bint is_nullable
    int first  # of its children among the nodes
    int count
    Text name
    Py_ssize_t name_size


cdef class Screen:
    """Of one schema, given as `(kind, name, nullable, size, scale, children)` with the record itself on top."""

    cdef Node* nodes
    cdef object description
    cdef list names  # which the nodes point into

    def __cinit__(self, tuple description):
        self.description = description
        self.names = []
        flat = [description]
        firsts = []
        for one in flat:  # grows while it is walked: the children of a node stand side by side
            firsts.append(len(flat))
            flat.extend(one[5])
        self.nodes = <Node*>calloc(len(flat), sizeof(Node))
        if self.nodes is NULL:
            raise MemoryError
        for number, (kind, name, is_nullable, size, scale, children) in enumerate(flat):
            encoded = name.encode()
            self.names.append(encoded)
            self.nodes[number].kind = KINDS[kind]
            self.nodes[number].size = size
            self.nodes[number].scale = scale
            self.nodes[number].is_nullable = is_nullable
            self.nodes[number].first = firsts[number]
            self.nodes[number].count = len(children)
            self.nodes[number].name = <Text><char*>encoded
            self.nodes[number].name_size = len(encoded)

    def __dealloc__(self):
        free(self.nodes)

    def __reduce__(self):
        return Screen, (self.description,)

    def doubts(self, const int32_t[::1] offsets not None, const uint8_t[::1] data):
        """A byte for each value between two offsets: 1 where the reader may stumble."""
        cdef Py_ssize_t rows = offsets.shape[0] - 1, row
        cdef bytearray found = bytearray(rows)
        cdef uint8_t[::1] flags = found
        cdef Text base = NULL
        if data is None or data.shape[0] == 0:
            return bytearray(b"\1" * rows)  # empty values, all of them
        base = &data[0]
        with nogil:
            for row in range(rows):
                flags[row] = not is_document(self.nodes, base + offsets[row], base + offsets[row + 1])
        return found


def broken_depth(const uint8_t[::1] value not None):
    """How deep the brackets go in a value that is no JSON for any reader; 0 if one might accept it.

    It looks at brackets, commas, colons and quotes alone, and takes whatever stands between them: so it is sure of what
    it calls broken. Whoever reads such a value with a parser that follows it down pays for every level.
    """
    cdef Py_ssize_t size = value.shape[0]
    cdef uint8_t* closers
    cdef int64_t found
    if size == 0:
        return 0
    closers = <uint8_t*>malloc(size)  # a level is a byte at least
    if closers is NULL:
        raise MemoryError
    with nogil:
        found = depth_where_broken(&value[0], &value[0] + size, closers)
    free(closers)
    return found


cdef int64_t depth_where_broken(Text at, Text end, uint8_t* closers) noexcept nogil:
    cdef int64_t depth = 0, deepest = 0
    cdef uint8_t letter
    at = after_space(at, end)
    while True:
        if at >= end:
            return deepest + 1
        letter = at[0]
        if letter == b"{" or letter == b"[":
            closers[depth] = letter + 2  # of both
            depth += 1
            deepest = max(deepest, depth)
            at = after_space(at + 1, end)
            if at >= end:
                return deepest + 1
            if at[0] != closers[depth - 1]:
                if letter == b"{":
                    at = after_any_name(at, end)
                    if at is NULL:
                        return deepest + 1
                continue
        elif letter == b'"':
            at = after_any_text(at, end)
            if at is NULL:
                return deepest + 1
        elif is_mark(letter):
            return deepest + 1
        else:
            while at < end and not is_mark(at[0]):
                at += 1
        while True:
            at = after_space(at, end)
            if depth == 0:
                return 0 if at == end else deepest + 1
            if at >= end:
                return deepest + 1
            if at[0] == closers[depth - 1]:
                depth -= 1
                at += 1
                continue
            if at[0] != b",":
                return deepest + 1
            at = after_space(at + 1, end)
            if closers[depth - 1] == b"}":
                at = after_any_name(at, end)
                if at is NULL:
                    return deepest + 1
            break


cdef inline bint is_mark(uint8_t letter) noexcept nogil:
    return (
        letter == b"," or letter == b":" or letter == b'"'
        or letter == b"{" or letter == b"}" or letter == b"[" or letter == b"]"
    )


cdef inline Text after_any_text(Text at, Text end) noexcept nogil:
    at += 1
    while at < end and at[0] != b'"':
        at += 2 if at[0] == b"\\" else 1
    return at + 1 if at < end else NULL


cdef inline Text after_any_name(Text at, Text end) noexcept nogil:
    if at >= end or at[0] != b'"':
        return NULL
    at = after_any_text(at, end)
    if at is NULL:
        return NULL
    at = after_space(at, end)
    return after_space(at + 1, end) if at < end and at[0] == b":" else NULL


cdef inline bint is_document(Node* nodes, Text at, Text end) noexcept nogil:
    at = after_space(at, end)
    if at == end or at[0] != b"{":
        return False
    at = after_value(nodes, nodes, at, end)
    return at is not NULL and after_space(at, end) == end


cdef inline Text after_space(Text at, Text end) noexcept nogil:
    while at < end and (at[0] == b" " or at[0] == b"\n" or at[0] == b"\t" or at[0] == b"\r"):
        at += 1
    return at


cdef Text after_value(Node* nodes, Node* node, Text at, Text end) noexcept nogil:
    """Where the value ends that begins here; NULL if it is doubtful. Recursion ends where the schema does."""
    if at >= end:
        return NULL
    if node is NULL:
        return after_skipped(at, end)
    if at[0] == b"{":
        return after_object(nodes, node, at, end) if node.kind == STRUCT else NULL
    if at[0] == b"[":
        return after_array(nodes, node, at, end) if node.kind == ARRAY else NULL
    return after_scalar(node.kind, node, at, end)


cdef Text after_scalar(int kind, Node* node, Text at, Text end) noexcept nogil:
    cdef uint8_t first
    if at >= end:
        return NULL
    first = at[0]
    if first == b'"':
        return after_text(kind, node, at, end)
    if first == b"n":
        return after_word(at, end, b"null", 4) if node is NULL or node.is_nullable else NULL
    if first == b"t":
        return after_word(at, end, b"true", 4) if kind == BOOLEAN or kind == SKIPPED else NULL
    if first == b"f":
        return after_word(at, end, b"false", 5) if kind == BOOLEAN or kind == SKIPPED else NULL
    return after_number(kind, node, at, end)


cdef Text after_skipped(Text at, Text end) noexcept nogil:
    """Past a value that nobody looks at. It may be nested deeply, so this keeps what is open itself."""
    cdef uint8_t[DEPTH_MAX] closers
    cdef uint8_t closer
    cdef int depth = 0
    while True:
        if at < end and (at[0] == b"{" or at[0] == b"["):
            closer = at[0] + 2  # of both
            at = after_space(at + 1, end)
            if at >= end or at[0] != closer:
                if depth == DEPTH_MAX:
                    return NULL
                closers[depth] = closer
                depth += 1
                if closer == b"}":
                    at = after_name(at, end)
                    if at is NULL:
                        return NULL
                continue
            at += 1
        else:
            at = after_scalar(SKIPPED, NULL, at, end)
            if at is NULL:
                return NULL
        while depth:
            at = after_space(at, end)
            if at >= end:
                return NULL
            if at[0] == closers[depth - 1]:
                depth -= 1
                at += 1
                continue
            if at[0] != b",":
                return NULL
            at = after_space(at + 1, end)
            if closers[depth - 1] == b"}":
                at = after_name(at, end)
                if at is NULL:
                    return NULL
            break
        else:
            return at


cdef inline Text after_name(Text at, Text end) noexcept nogil:
    """From a name to the value behind it."""
    if at >= end or at[0] != b'"':
        return NULL
    at = after_text(SKIPPED, NULL, at, end)
    if at is NULL:
        return NULL
    at = after_space(at, end)
    return after_space(at + 1, end) if at < end and at[0] == b":" else NULL


cdef inline Text after_word(Text at, Text end, const char* word, Py_ssize_t size) noexcept nogil:
    return at + size if end - at >= size and memcmp(at, word, size) == 0 else NULL


cdef Text after_object(Node* nodes, Node* node, Text at, Text end) noexcept nogil:
    cdef Node* child
    cdef Text name
    cdef int expected = 0, number
    cdef uint64_t met = 0
    at = after_space(at + 1, end)
    if at < end and at[0] == b"}":
        return at + 1 if has_all(nodes, node, met) else NULL
    while True:
        if at >= end or at[0] != b'"':
            return NULL
        name = at + 1
        at = after_text(SKIPPED, NULL, at, end)
        if at is NULL:
            return NULL
        child = NULL
        number = child_named(nodes, node, name, at - 1 - name, expected)
        if number == -2:
            return NULL
        if number >= 0:
            child = nodes + node.first + number
            expected = number + 1
            if number < 64:
                if met >> number & 1:
                    return NULL  # it stands there twice
                met |= <uint64_t>1 << number
        at = after_space(at, end)
        if at >= end or at[0] != b":":
            return NULL
        at = after_value(nodes, child, after_space(at + 1, end), end)
        if at is NULL:
            return NULL
        at = after_space(at, end)
        if at >= end:
            return NULL
        if at[0] == b"}":
            return at + 1 if has_all(nodes, node, met) else NULL
        if at[0] != b",":
            return NULL
        at = after_space(at + 1, end)


cdef inline int child_named(Node* nodes, Node* node, Text name, Py_ssize_t size, int expected) noexcept nogil:
    """Which child is named so; -1 if none is, -2 if the name is written with escapes. Fields mostly come in order."""
    cdef int tried, number
    cdef Node* child
    cdef Py_ssize_t index
    for tried in range(node.count):
        number = expected + tried
        if number >= node.count:
            number -= node.count
        child = nodes + node.first + number
        if child.name_size == size and memcmp(child.name, name, size) == 0:
            return number
    for index in range(size):
        if name[index] == b"\\":
            return -2
    return -1


cdef inline bint has_all(Node* nodes, Node* node, uint64_t met) noexcept nogil:
    cdef int number
    for number in range(min(node.count, 64)):
        if not nodes[node.first + number].is_nullable and not met >> number & 1:
            return False
    return True


cdef Text after_array(Node* nodes, Node* node, Text at, Text end) noexcept nogil:
    at = after_space(at + 1, end)
    if at < end and at[0] == b"]":
        return at + 1
    while True:
        at = after_value(nodes, nodes + node.first, at, end)
        if at is NULL:
            return NULL
        at = after_space(at, end)
        if at >= end:
            return NULL
        if at[0] == b"]":
            return at + 1
        if at[0] != b",":
            return NULL
        at = after_space(at + 1, end)


cdef Text after_text(int kind, Node* node, Text at, Text end) noexcept nogil:
    cdef Text begin = at + 1
    cdef bint has_escapes = False
    at = begin
    while True:
        at = after_plain(at, end)
        if at >= end:
            return NULL
        if at[0] == b'"':
            break
        if at[0] == b"\\":
            has_escapes = True
            at = after_escape(at, end)
        elif at[0] < 0x20:
            return NULL
        elif at[0] < 0x80:
            at += 1
        else:
            at = after_letter(at, end)
        if at is NULL:
            return NULL
    if kind == SKIPPED or kind == STRING:
        return at + 1
    if kind == DECIMAL:
        return at + 1 if not has_escapes and is_decimal(node, begin, at, True) else NULL
    if has_escapes:
        return at + 1 if kind >= DATE and kind <= BASE64 else NULL  # too rare to unescape it: the reader finds out
    if kind == DATE:
        return at + 1 if at - begin == 10 and is_date(begin) else NULL
    if kind == TIMESTAMP or kind == TIMESTAMP_NTZ:
        return at + 1 if is_timestamp(begin, at, kind == TIMESTAMP) else NULL
    if kind == BASE64:
        return at + 1 if is_base64(begin, at) else NULL
    return NULL


cdef inline Text after_plain(Text at, Text end) noexcept nogil:
    """Past letters of ASCII that mean nothing special, eight at a time; it may stop early."""
    cdef uint64_t eight, special
    while end - at >= 8:
        memcpy(&eight, at, 8)
        special = eight | (eight - EACH * 0x20) | ((eight ^ EACH * 0x22) - EACH) | ((eight ^ EACH * 0x5C) - EACH)
        if special & (EACH * 0x80):  # a high bit, something below a space, a quote or a backslash
            return at
        at += 8
    return at


cdef inline Text after_escape(Text at, Text end) noexcept nogil:
    cdef int first, second
    if end - at < 2:
        return NULL
    if at[1] != b"u":
        for letter in b'"\\/bfnrt':
            if at[1] == letter:
                return at + 2
        return NULL
    first = code_unit(at, end)
    if first < 0 or 0xDC00 <= first < 0xE000:
        return NULL
    if not 0xD800 <= first < 0xDC00:
        return at + 6
    second = code_unit(at + 6, end)
    return at + 12 if 0xDC00 <= second < 0xE000 else NULL


cdef inline int code_unit(Text at, Text end) noexcept nogil:
    """Of \\uXXXX; -1 if it is none."""
    cdef int found = 0, index
    cdef uint8_t digit
    if end - at < 6 or at[0] != b"\\" or at[1] != b"u":
        return -1
    for index in range(2, 6):
        digit = at[index]
        if 48 <= digit < 58:
            found = found * 16 + digit - 48
        elif 97 <= (digit | 32) < 103:
            found = found * 16 + (digit | 32) - 87
        else:
            return -1
    return found


cdef inline Text after_letter(Text at, Text end) noexcept nogil:
    """Past one letter of several bytes; NULL unless it is UTF-8 in its shortest form."""
    cdef int more, index
    cdef uint8_t first = at[0], low = 0x80, high = 0xBF
    if 0xC2 <= first < 0xE0:
        more = 1
    elif 0xE0 <= first < 0xF0:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first < 0xF5:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return NULL
    if end - at <= more or not low <= at[1] <= high:
        return NULL
    for index in range(2, more + 1):
        if at[index] & 0xC0 != 0x80:
            return NULL
    return at + more + 1


cdef Text after_number(int kind, Node* node, Text at, Text end) noexcept nogil:
    cdef Text begin = at
    cdef Py_ssize_t whole
    cdef bint is_plain = True
    cdef int exponent = 0
    if at < end and at[0] == b"-":
        at += 1
    if at >= end:
        return NULL
    if not is_digit(at[0]):
        return after_constant(at, end) if kind == SKIPPED else NULL
    if at[0] == b"0":
        at += 1
        whole = 0
    else:
        whole = after_digits(at, end) - at
        at += whole
    if at < end and at[0] == b".":
        is_plain = False
        at += 1
        if at >= end or not is_digit(at[0]):
            return NULL
        at = after_digits(at, end)
    if at < end and (at[0] | 32) == b"e":
        is_plain = False
        at += 1
        if at < end and (at[0] == b"+" or at[0] == b"-"):
            at += 1
        if at >= end or not is_digit(at[0]):
            return NULL
        while at < end and is_digit(at[0]):
            exponent = min(exponent * 10 + at[0] - 48, 10_000)
            at += 1
    if kind == INTEGER:
        return at if is_plain and is_integer(node.size, begin, at) else NULL
    if kind == DECIMAL:
        return at if is_decimal(node, begin, at, False) else NULL
    if kind == SKIPPED or kind == FLOATING:
        return at if whole + exponent < (30 if node is not NULL and node.size == 32 else 300) else NULL
    return NULL


cdef inline Text after_constant(Text at, Text end) noexcept nogil:
    """Past what is no JSON, and what Arrow's reader skips nevertheless."""
    cdef Text behind = after_word(at, end, b"Infinity", 8)
    if behind is NULL:
        behind = after_word(at, end, b"Inf", 3)
    return after_word(at, end, b"NaN", 3) if behind is NULL else behind


cdef inline bint is_digit(uint8_t letter) noexcept nogil:
    return 48 <= letter < 58


cdef inline Text after_digits(Text at, Text end) noexcept nogil:
    while at < end and is_digit(at[0]):
        at += 1
    return at


cdef inline bint is_integer(int bits, Text at, Text end) noexcept nogil:
    cdef uint64_t found = 0, most = (<uint64_t>1 << (bits - 1)) - 1
    if at[0] == b"-":
        at += 1
        most += 1
    if end - at > 19:
        return False
    while at < end:
        found = found * 10 + at[0] - 48
        at += 1
    return found <= most


cdef inline bint is_decimal(Node* node, Text at, Text end, bint is_text) noexcept nogil:
    """Whether the type surely holds it. What is written with an exponent, or with more zeros, is doubtful."""
    cdef Text point
    if at < end and (at[0] == b"-" or is_text and at[0] == b"+"):
        at += 1
    if at >= end or not is_digit(at[0]):
        return False
    while at + 1 < end and at[0] == b"0" and is_digit(at[1]):
        at += 1
    point = after_digits(at, end)
    if point - at > node.size - node.scale and not (point - at == 1 and at[0] == b"0"):
        return False
    if point == end:
        return True
    if point[0] != b"." or point + 1 == end:
        return False
    return after_digits(point + 1, end) == end and end - point - 1 <= node.scale


cdef inline int pair(Text at) noexcept nogil:
    """Two digits as a number; 100 if they are none."""
    return (at[0] - 48) * 10 + at[1] - 48 if is_digit(at[0]) and is_digit(at[1]) else 100


cdef inline bint is_date(Text at) noexcept nogil:
    """The first ten letters."""
    cdef int century = pair(at), year = pair(at + 2), month = pair(at + 5), day = pair(at + 8), most
    if century == 100 or year == 100 or century + year == 0 or at[4] != b"-" or at[7] != b"-":
        return False
    if month < 1 or month > 12 or day < 1:
        return False
    most = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        most = 30
    elif month == 2:
        most = 29 if year % 4 == 0 and (year != 0 or century % 4 == 0) else 28
    return day <= most


cdef inline bint is_timestamp(Text at, Text end, bint may_have_zone) noexcept nogil:
    cdef int part
    cdef bint is_outermost
    if end - at < 10 or not is_date(at):
        return False
    # A zone may move these days out of the years 1 to 9999: too rare to find out here.
    is_outermost = memcmp(at, b"0001-01-01", 10) == 0 or memcmp(at, b"9999-12-31", 10) == 0
    at += 10
    if at == end:
        return True
    if at[0] != b"T" and at[0] != b" ":
        return False
    for part in range(3):
        if part and (at == end or at[0] != b":"):
            break
        if end - at < 3 or pair(at + 1) >= (24 if part == 0 else 60):
            return False
        at += 3
        if part == 2 and at < end and at[0] == b".":
            if at + 1 == end or not is_digit(at[1]):
                return False
            at = after_digits(at + 1, end)
    if at == end:
        return True
    if not may_have_zone:
        return False
    if at[0] == b"Z":
        return at + 1 == end
    if is_outermost or at[0] != b"+" and at[0] != b"-" or end - at < 3 or pair(at + 1) >= 24:
        return False
    at += 3
    if at == end:
        return True
    if at[0] == b":":
        at += 1
    return end - at == 2 and pair(at) < 60


cdef inline bint is_base64(Text at, Text end) noexcept nogil:
    cdef Text letter = at
    if (end - at) % 4:
        return False
    while letter < end and (is_digit(letter[0]) or 97 <= (letter[0] | 32) < 123 or letter[0] == b"+" or letter[0] == b"/"):
        letter += 1
    if letter == end:
        return True
    if end - letter > 2 or end - at < 4:
        return False
    return letter[0] == b"=" and (end - letter == 1 or letter[1] == b"=")
