package http2codec

import "bytes"

// encoderTable is the dynamic table of an Encoder, of which the peer's decoder keeps a copy. It also records recent
// sightings: the hashes of the field lines that were sent lately.
//
// A field line enters the table when it is sent while a sighting of it is recorded. So a value that belongs to one
// request, such as an identifier or an address, never enters the table, and evicts no value that every request has. An
// :authority enters without a sighting, since it is a pseudo-header field: see Encoder.appendAuthority.
type encoderTable struct {
	inserted uint64 // the number of the newest entry; numbers start at 1
	count    int
	size     int // as defined by RFC 7541, section 4.1
	max      int

	*encoderMemory // allocated for the first line
}

type encoderMemory struct {
	entries   [maxTableEntries]encoderEntry // a ring; number n is at n % maxTableEntries
	sightings [256][2]sighting              // by hash
}

// allocate allocates the table's memory, once.
func (t *encoderTable) allocate() {
	if t.encoderMemory == nil {
		t.encoderMemory = new(encoderMemory)
	}
}

type encoderEntry struct {
	line []byte // without CRLF, empty for :authority; its memory is kept for the next line
	size int    // as defined by RFC 7541, section 4.1
}

// sighting records that a line was sent.
type sighting struct {
	hash  uint64
	entry uint64 // the number of the line's entry; 0 = the line is not in the table
}

// maxEntrySize bounds the size of an entry, and so the memory that the table keeps.
const maxEntrySize = 512

// admits reports whether the table accepts an entry of this size. A larger one would evict too many others.
func (t *encoderTable) admits(size int) bool {
	return size <= maxEntrySize && size <= t.max/4
}

// alive reports whether entry n is still in the table.
func (t *encoderTable) alive(n uint64) bool { return n != 0 && n+uint64(t.count) > t.inserted }

// index returns the index of entry n, which is alive, in the static and the dynamic table together: RFC 7541, section 2.3.3.
func (t *encoderTable) index(n uint64) int { return len(staticTable) + int(t.inserted-n) }

// find returns the sighting of line. It returns nil if there is none, or if an entry of another line has the same hash. The
// sighting's entry is alive or 0.
func (t *encoderTable) find(hash uint64, line []byte) *sighting {
	t.allocate()
	set := &t.sightings[hash%uint64(len(t.sightings))]
	for i := range set {
		s := &set[i]
		if s.hash != hash {
			continue
		}
		if !t.alive(s.entry) {
			s.entry = 0
			return s
		}
		if bytes.Equal(t.entries[s.entry%maxTableEntries].line, line) {
			return s
		}
		return nil // another line has the same hash; its entry stays
	}
	return nil
}

// note records that a line with this hash was sent. It replaces a sighting of its set whose line is not in the table, the
// second of the set if neither line is. If both lines are in the table, it does nothing.
func (t *encoderTable) note(hash uint64) {
	t.allocate()
	set := &t.sightings[hash%uint64(len(t.sightings))]
	switch {
	case !t.alive(set[0].entry):
		if !t.alive(set[1].entry) {
			set[1] = set[0]
		}
		set[0] = sighting{hash: hash}
	case !t.alive(set[1].entry):
		set[1] = sighting{hash: hash}
	}
}

// insert adds an entry, whose size must be at most t.max, and returns its number.
func (t *encoderTable) insert(line []byte, size int) uint64 {
	t.allocate()
	t.evict(t.max - size)
	t.inserted++
	t.count++
	t.size += size
	e := &t.entries[t.inserted%maxTableEntries]
	e.line = append(e.line[:0], line...)
	e.size = size
	return t.inserted
}

func (t *encoderTable) setMax(n int) {
	t.max = n
	t.evict(n)
}

// evict drops the oldest entries until the remaining ones take at most size.
func (t *encoderTable) evict(size int) {
	for t.size > size {
		t.size -= t.entries[(t.inserted-uint64(t.count)+1)%maxTableEntries].size
		t.count--
	}
}
