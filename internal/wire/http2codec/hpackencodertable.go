package http2codec

import "bytes"

// encoderTable is adbuffer's dynamic table, of which the peer's decoder keeps a copy. It also remembers the hashes of
// recent lines that were sent once.
//
// A line enters the table when it is sent a second time while its hash is still remembered. So a value that belongs
// to one request, such as an identifier or an address, never enters the table, and evicts no value that every request
// has.
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

// grow allocates the memory for lines.
func (t *encoderTable) grow() {
	if t.encoderMemory == nil {
		t.encoderMemory = new(encoderMemory)
	}
}

type encoderEntry struct {
	line []byte // without CRLF; its memory is kept for the next line
	size int
}

// sighting records that a line was sent.
type sighting struct {
	hash  uint64
	entry uint64 // the number of the line's entry; 0 = the line is not in the table
}

// maxLine bounds the size of an entry in the table, and so adbuffer's memory.
const maxLine = 512

// worthwhile reports whether a line of this size should enter the table.
func (t *encoderTable) worthwhile(size int) bool {
	return size <= maxLine && size <= t.max/4
}

// alive reports whether entry n is still in the table.
func (t *encoderTable) alive(n uint64) bool { return n != 0 && n+uint64(t.count) > t.inserted }

// index returns the index of entry n, which is alive: RFC 7541, section 2.3.3.
func (t *encoderTable) index(n uint64) int { return len(staticTable) + int(t.inserted-n) }

// find returns the sighting of line, whose entry is alive or 0. It returns nil if the line is not
// remembered.
func (t *encoderTable) find(hash uint64, line []byte) *sighting {
	t.grow()
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
		return nil // another line with the same hash; it may stay
	}
	return nil
}

// note records that a line with this hash was sent, unless all lines that it would replace are in
// the table.
func (t *encoderTable) note(hash uint64) {
	t.grow()
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

// insert adds an entry, which must fit, and returns its number.
func (t *encoderTable) insert(line []byte, size int) uint64 {
	t.grow()
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
