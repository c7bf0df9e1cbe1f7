package ssp

import (
	"strconv"

	"adbuffer/internal/wire/syntax"
)

// noBidReason is the SSP's reason for a no-bid in its OpenRTB response: the field nbr.
type noBidReason uint8

// The reasons 0 to maxNBR are those of OpenRTB 3.0, "List: No-Bid Reason Codes", to which OpenRTB 2.6
// refers. Vendors define the reasons from firstVendorNBR on.
const (
	maxNBR         = 17
	firstVendorNBR = 500

	nbrVendor    = noBidReason(maxNBR + 1)
	nbrOther     = noBidReason(maxNBR + 2) // another number
	nbrNone      = noBidReason(maxNBR + 3) // no number, or no document
	noBidReasons = maxNBR + 4
	maxReason    = 1e9 // adbuffer reads no larger number
)

var noBidReasonNames = func() (names [noBidReasons]string) {
	for i := range maxNBR + 1 {
		names[i] = strconv.Itoa(i)
	}
	names[nbrVendor], names[nbrOther], names[nbrNone] = "vendor", "other", "none"
	return names
}()

// noBidReasonOf returns the reason for the value of nbr, nil if there is none.
func noBidReasonOf(nbr []byte) noBidReason {
	if len(nbr) == 0 || !syntax.IsDigit(nbr[0]) {
		return nbrNone
	}
	n, ok := syntax.ParseNumber(nbr, maxReason)
	switch {
	case !ok:
		return nbrOther
	case n >= firstVendorNBR:
		return nbrVendor
	case n > maxNBR:
		return nbrOther
	}
	return noBidReason(n)
}
