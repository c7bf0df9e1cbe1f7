package httpheader

// Size returns the length of the scanned block, in bytes.
func (f *RequestFields) Size() int { return len(f.raw) }

// CopyFrom copies the fields of from into f, in memory that is appended to mem, and returns the
// extended mem. After it, the request behind from may be released. It costs another scan; nothing
// is filtered again.
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

// CopyFrom copies from into id. f is a copy of the fields from which from was resolved, and id
// refers only to f's bytes.
func (id *Identity) CopyFrom(from *Identity, f *RequestFields) {
	*id = *from
	id.agent = f.userAgent
	if id.trusted && f.devices {
		id.readDevice(f)
	}
}
