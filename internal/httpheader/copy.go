package httpheader

// Size returns the length of the scanned block, in bytes.
func (f *RequestFields) Size() int { return len(f.raw) }

// CopyFrom makes f hold what from holds, in memory that is appended to mem, and returns mem so
// extended. The request behind from may be forgotten then. It costs another scan; nothing is
// filtered anew.
func (f *RequestFields) CopyFrom(from *RequestFields, mem []byte) []byte {
	start := len(mem)
	mem = append(mem, from.raw...)
	f.MaxFields, f.TimeoutName, f.IDName, f.HTTP10, f.HTTP2 = from.MaxFields, from.TimeoutName, from.IDName, from.HTTP10, from.HTTP2
	if err := f.Scan(mem[start:len(mem):len(mem)]); err != nil {
		panic("BUG: a block that was scanned before is refused: " + err.Error())
	}
	f.id = from.id
	return mem
}

// CopyFrom makes id what from is. f is a copy of the fields that from was resolved from, and id has
// no bytes but f's.
func (id *Identity) CopyFrom(from *Identity, f *RequestFields) {
	*id = *from
	id.agent = f.userAgent
	if id.trusted && f.devices {
		id.readDevice(f)
	}
}
