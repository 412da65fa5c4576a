/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gives a target its stored inputs, and every beginning of each: what is cut short is the commonest damage.
 */

#include <dirent.h>
#include <limits.h>

#include "fuzz.h"

#define INPUT_MAX 65536U
/* Of larger files not each beginning is tried. */
#define BEGINNINGS_MAX 512U

static size_t n_inputs;

static void replay(const char *path) {
        static uint8_t buffer[INPUT_MAX];
        size_t size, step;
        FILE *f;

        f = fopen(path, "re");
        if (!f) {
                perror(path);
                exit(EXIT_FAILURE);
        }
        size = fread(buffer, 1, sizeof(buffer), f);
        fclose(f);

        /* Shown only if it comes to the worst. */
        fprintf(stderr, "%s\n", path);
        step = size / BEGINNINGS_MAX + 1;
        for (size_t n = 0; n < size; n += step) {
                /* A copy of just this size, so that a sanitizer sees what reads beyond. */
                uint8_t *copy = malloc(n + !n);

                FUZZ_CHECK(copy);
                memcpy(copy, buffer, n);
                (void) LLVMFuzzerTestOneInput(copy, n);
                free(copy);
        }
        (void) LLVMFuzzerTestOneInput(buffer, size);
        n_inputs++;
}

int main(int argc, char *argv[]) {
        for (int i = 1; i < argc; i++) {
                char path[PATH_MAX];
                struct dirent *de;
                DIR *d = opendir(argv[i]);

                if (!d) {
                        replay(argv[i]);
                        continue;
                }
                while ((de = readdir(d))) {
                        if (de->d_name[0] == '.')
                                continue;
                        snprintf(path, sizeof(path), "%s/%s", argv[i], de->d_name);
                        replay(path);
                }
                closedir(d);
        }
        if (n_inputs == 0) {
                fprintf(stderr, "no input: give files, or folders with files\n");
                return EXIT_FAILURE;
        }
        printf("%zu inputs\n", n_inputs);
        return EXIT_SUCCESS;
}
