package proxy

import "time"

// tmax returns the tmax of an OpenRTB body.
func tmax(r *request) (time.Duration, bool) { return 0, false }
