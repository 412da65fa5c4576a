/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The named errors of org.tdpd1. */

#include <systemd/sd-bus.h>

#define TDP_ERROR_PREFIX          "org.tdpd1.Error."
#define TDP_ERROR_INVALID         TDP_ERROR_PREFIX "InvalidArgument"
#define TDP_ERROR_NO_SUCH_VM      TDP_ERROR_PREFIX "NoSuchVM"
#define TDP_ERROR_NO_SUCH_JOB     TDP_ERROR_PREFIX "NoSuchJob"
#define TDP_ERROR_NO_SUCH_NODE    TDP_ERROR_PREFIX "NoSuchNode"
#define TDP_ERROR_NAME_TAKEN      TDP_ERROR_PREFIX "NameTaken"
#define TDP_ERROR_NO_PAGES        TDP_ERROR_PREFIX "NoPages"
#define TDP_ERROR_PARTIAL         TDP_ERROR_PREFIX "Partial"
#define TDP_ERROR_NOT_PERMITTED   TDP_ERROR_PREFIX "NotPermitted"
#define TDP_ERROR_UNSUPPORTED     TDP_ERROR_PREFIX "Unsupported"
#define TDP_ERROR_BUSY            TDP_ERROR_PREFIX "Busy"
#define TDP_ERROR_NO_SUCH_PROCESS TDP_ERROR_PREFIX "NoSuchProcess"
#define TDP_ERROR_NOT_VMM         TDP_ERROR_PREFIX "NotVMM"
#define TDP_ERROR_SEVERAL_VMS     TDP_ERROR_PREFIX "SeveralVMs"
#define TDP_ERROR_LIMIT           TDP_ERROR_PREFIX "LimitExceeded"
#define TDP_ERROR_CONFIG          TDP_ERROR_PREFIX "InvalidConfig"
#define TDP_ERROR_CANCELED        TDP_ERROR_PREFIX "Canceled"
#define TDP_ERROR_FAILED          TDP_ERROR_PREFIX "Failed"
/* Of handoffs: */
#define TDP_ERROR_NO_SUCH_HANDOFF TDP_ERROR_PREFIX "NoSuchHandoff"
#define TDP_ERROR_BAD_MESSAGE     TDP_ERROR_PREFIX "BadMessage"
#define TDP_ERROR_TOO_NEW         TDP_ERROR_PREFIX "TooNew"
#define TDP_ERROR_MISMATCH        TDP_ERROR_PREFIX "Mismatch"
#define TDP_ERROR_STALE           TDP_ERROR_PREFIX "Stale"
#define TDP_ERROR_TOO_EARLY       TDP_ERROR_PREFIX "TooEarly"
#define TDP_ERROR_TOO_LATE        TDP_ERROR_PREFIX "TooLate"
#define TDP_ERROR_EXPIRED         TDP_ERROR_PREFIX "Expired"
