/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How [Rule NAME] sections are read. */

#include "config-table.h"

extern const ConfigType config_type_rule_globs, config_type_rule_users, config_type_rule_sizes,
                config_type_rule_decision, config_type_rule_page_size, config_type_rule_nodes,
                config_type_rule_warm, config_type_rule_adopt;

int rule_config_instance(Config *c, const char *name, void **ret, bool *ret_is_new, ConfigError *error);
void rule_config_done(Config *c);
/* Ranges have to have something in them. */
int rule_config_check(const Config *c, ConfigError *error);
