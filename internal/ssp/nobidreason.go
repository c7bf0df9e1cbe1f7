package ssp

import (
	"strconv"
	"sync/atomic"

	"adbuffer/internal/syntax"
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
	maxNBRDigits = 9
)

var noBidReasonNames = func() (names [noBidReasons]string) {
	for i := range maxNBR + 1 {
		names[i] = strconv.Itoa(i)
	}
	names[nbrVendor], names[nbrOther], names[nbrNone] = "vendor", "other", "none"
	return names
}()

// noBids counts no-bids by their reason.
type noBids [noBidReasons]atomic.Uint64

var openRTBReason = []byte(`"nbr"`)

// noBidReasonOf returns the reason in an OpenRTB document. It takes the first key nbr whose value
// is a number.
func noBidReasonOf(body []byte) noBidReason {
	for value := range valuesOf(openRTBReason, body) {
		n, digits := 0, 0
		for digits < len(value) && digits < maxNBRDigits && syntax.IsDigit(value[digits]) {
			n = 10*n + int(value[digits]-'0')
			digits++
		}
		switch {
		case digits == 0:
			continue
		case n >= firstVendorNBR:
			return nbrVendor
		case n > maxNBR:
			return nbrOther
		}
		return noBidReason(n)
	}
	return nbrNone
}
