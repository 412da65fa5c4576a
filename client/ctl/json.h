/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>

#include "args.h"
#include "tdp/tdp.h"

/*
 * JSON of what the daemon tells. Keys are the contract's words in lower case with underscores
 * ("FaultsSinceBuild" is "faults_since_build"); structures have the keys that the tables in json.c give
 * them. All functions return a new reference, or NULL if memory is short.
 */
json_object *json_from_value(const struct tdp_value *value);

/* The reasons of a decision: [{"reason", "text"}]. */
json_object *json_from_reasons(const struct tdp_value *reasons);
json_object *json_from_holders(const struct tdp_value *holders);

json_object *json_from_vm(const struct tdp_vm *vm); /* all properties, if they were read */
json_object *json_from_node(const struct tdp_node *node);
json_object *json_from_handoff(const struct tdp_handoff *h);
json_object *json_from_job(const struct tdp_job *job);

/* Writes it as the arguments ask, and a newline. Frees it. 0, or -ENOMEM if it is NULL. */
int json_print(const struct args *args, json_object *object);

/* The same into a file of which no half-written version is ever seen. */
int json_write_file(const char *path, json_object *object);

void json_add_string(json_object *object, const char *key, const char *value);
void json_add_uint(json_object *object, const char *key, uint64_t value);

/* "FaultsSinceBuild", "abi-version" -> "faults_since_build", "abi_version". */
char *json_key(const char *word);
