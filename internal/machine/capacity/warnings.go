package capacity

import "fmt"

// warnings compares what the plan needs with the limits of the system.
func (in PlanInput) warnings(r PlanResult) []string {
	var w []string
	if r.FileDescriptors > in.FileDescriptors {
		w = append(w, fmt.Sprintf(
			"file descriptors: %d connections to the SSP and their clients need %d of one process, whose limit is %d; "+
				"raise it (ulimit -Hn, LimitNOFILE= of systemd, ulimits of the container) or spread the rate over more replicas",
			r.Places, r.FileDescriptors, in.FileDescriptors))
	}
	if r.PortsPerAddress > in.PortsPerAddress {
		w = append(w, fmt.Sprintf(
			"ephemeral ports: %d are needed from one source address to one address of the SSP, %d exist; "+
				"widen net.ipv4.ip_local_port_range, give the replicas more source addresses, name more endpoints of the SSP, or use HTTP/2 (%d connections a replica)",
			r.PortsPerAddress, in.PortsPerAddress, r.HTTP2GrownConns))
	}
	if r.SlowHold < r.MeanHold {
		w = append(w, fmt.Sprintf(
			"slow-hold %v is below the mean hold %v: the full rate with it would be too optimistic",
			r.SlowHold, r.MeanHold))
	}
	return w
}
