/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Where a VM's memory goes: a pure function of the nodes' snapshot, our claims and the request. */

#include <systemd/sd-bus.h>

#include "node.h"

typedef enum NumaMode {
        /* These nodes and no other: the one where it fits best, with CPUs for its vCPUs if there is a
         * choice, or as few as possible if no one node is enough. */
        NUMA_AUTO,
        /* These nodes and no other: the one with the least room that is enough, or several, in their order.
         */
        NUMA_STRICT,
        /* These nodes first, then any other. */
        NUMA_PREFERRED,
        /* An equal share of each of these nodes. */
        NUMA_INTERLEAVE,
        _NUMA_MODE_MAX,
        _NUMA_MODE_INVALID = -1,
} NumaMode;

const char *numa_mode_to_string(NumaMode m);
NumaMode numa_mode_from_string(const char *s);

/* What a VM of ours has claimed on a node and not yet allocated. */
typedef struct Claim {
        unsigned node;
        uint64_t page_size;
        uint64_t unallocated; /* bytes */
        uint64_t bytes;       /* all of it */
} Claim;

typedef struct PlacementPart {
        unsigned node;
        uint64_t bytes;
} PlacementPart;

#define PLACEMENT_PARTS_MAX 64U

typedef struct PlacementRequest {
        uint64_t bytes;
        uint64_t page_size; /* 0: choose */
        bool has_nodes;     /* else choose */
        IdSet nodes;
        bool has_cpus; /* the nodes of these CPUs */
        IdSet cpus;
        NumaMode numa_mode;
        uint32_t vcpus; /* 0: unknown */
        /* So much on each of these nodes, whatever the mode; by ascending node. */
        PlacementPart parts[PLACEMENT_PARTS_MAX];
        size_t n_parts;
} PlacementRequest;

typedef struct Placement {
        uint64_t page_size;
        PlacementPart *parts; /* by ascending node */
        size_t n_parts;
} Placement;

void placement_done(Placement *p);
uint64_t placement_bytes(const Placement *p);

/* Errors are set in "error": InvalidArgument, NoSuchNode or NoPages. */
int placement_make(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                   Placement *ret, sd_bus_error *error);

/* "0:3G,1:1G", sorted.  -EINVAL, or -ERANGE for what is too large, too small or there twice. */
int placement_parts_parse(const char *s, PlacementPart parts[static PLACEMENT_PARTS_MAX], size_t *ret_n);
/* CPUs become the nodes that they are on.  InvalidArgument if one is on none, or nodes were asked for as
 * well. */
int placement_resolve(const NodeTable *t, PlacementRequest *req, sd_bus_error *error);

/* placement_make() without its checks of the request, for one page size.  > 0, or 0: it does not fit. */
int placement_try(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                  uint64_t page_size, Placement *ret);
/* placement-refuse.c: sets NoPages, with what each node has and what would fit instead. */
int placement_refuse(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                     uint64_t page_size, sd_bus_error *error);

/* Bytes of this page size that nobody has been promised. */
uint64_t placement_available(const Node *n, const Claim *claims, size_t n_claims, uint64_t page_size);
/* Pages of a pool that the configuration keeps for other programs, and that they have not taken yet. */
uint64_t placement_set_aside(const Node *n, const Pool *p, const Claim *claims, size_t n_claims);

/* placement-wait.c: for requests that wait for room.  None of the pools that such a request may use has
 * anything for those behind it. */
void placement_wait_for(NodeTable *t, const PlacementRequest *req);
/* There is a pool that the request may use, and that nobody before it waits for. */
bool placement_has_turn(const NodeTable *t, const PlacementRequest *req);
/* It would find room if all that these pools have were free, but for what is kept for other programs. */
bool placement_is_possible(const NodeTable *t, const PlacementRequest *req);
