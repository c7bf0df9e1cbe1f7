package proxy

import (
	"time"

	"adbuffer/internal/wire/header"
)

// requestID returns the id of r, or nil if requests have no ids. It sets the id of a request that was
// refused before prepare could.
func (r *request) requestID() []byte {
	if r.opts.RequestIDField == "" {
		return nil
	}
	if len(r.fields.RequestID()) == 0 {
		r.fields.SetRequestID(r.peerTrusted(), time.Now())
	}
	return r.fields.RequestID()
}

// newRequestID returns an id for a request that could not be read, or nil if requests have no ids.
func (v *configVersion) newRequestID() []byte {
	if v.opts.RequestIDField == "" {
		return nil
	}
	return header.AppendUUIDv7(nil, time.Now())
}

// setRequestID puts the id into the header of the response.
func (v *configVersion) setRequestID(w *response, id []byte) {
	if len(id) > 0 {
		w.addField(v.opts.RequestIDField, id)
	}
}
