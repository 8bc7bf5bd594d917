# What a Fetch returns: the sound batches at the start of what was read, found without a Python object for any of them.

cdef bint checks_unlocked() noexcept nogil:
    """Whether the processor computes CRCs itself, so that `find_run` can."""
    return HAS_CRC


cdef inline bint has_right_epoch(const Header *header, const Sought *sought) noexcept nogil:
    """As `check_epochs`: offsets before the first epoch have none to compare."""
    cdef int32_t at = sought.epoch_count - 1
    while at >= 0 and sought.epochs[at].first_offset > header.base_offset:
        at -= 1
    return at < 0 or sought.epochs[at].epoch == header.leader_epoch


cdef bint find_run(const uint8_t *data, int64_t size, const Sought *sought, FoundRun *found) noexcept nogil:
    """Walk and check as `walk` does, and epochs as `check_epochs`. False if the first batch is not the one that is
    sought, or has something wrong with it, or if a later one that would be returned has another epoch than its offset.
    Other damage ends the run before it: it is reported when a read begins there."""
    cdef Header header
    cdef int64_t expected = sought.expected
    cdef int64_t at = 0
    cdef bint is_gap
    found.size = found.needed_bytes = 0
    found.next_offset = expected
    while size - at >= LENGTH_PREFIX_BYTES and expected < sought.end_offset:
        if length_fault(data + at) != FINE:
            return at > 0
        if size - at < RECORDS_AT:
            break
        parse_header(data + at, at, &header)
        is_gap = at > 0 and expected < header.base_offset <= sought.gaps_below
        if is_gap and header.base_offset >= sought.end_offset:
            break
        if header_fault(&header, True) != FINE or (header.base_offset != expected and not is_gap):
            return at > 0
        if at and at + header.size > sought.max_bytes:
            break
        if header.size > size - at:
            if at == 0:
                found.needed_bytes = header.size
            break
        if fl_crc(data + at + ATTRIBUTES_AT, <size_t>(header.size - ATTRIBUTES_AT)) != header.crc:
            return at > 0
        if not has_right_epoch(&header, sought):
            return False
        at += header.size
        expected = next_offset_of(&header)
        found.size = at
        found.next_offset = expected
    return found.size > 0 or found.needed_bytes > 0
