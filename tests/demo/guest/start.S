/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Entry of the demo's guest, by the multiboot protocol: 32-bit protected mode, flat segments, no paging. */

#define MULTIBOOT_MAGIC 0x1badb002
#define MULTIBOOT_MEMORY_INFO 2

        .section .multiboot, "a"
        .align 4
        .long MULTIBOOT_MAGIC
        .long MULTIBOOT_MEMORY_INFO
        .long -(MULTIBOOT_MAGIC + MULTIBOOT_MEMORY_INFO)

        .text
        .global start
start:
        mov $stack_end, %esp
        push %ebx
        call guest_main
1:      cli
        hlt
        jmp 1b

        .bss
        .align 16
        .skip 4096
stack_end:

        .section .note.GNU-stack, "", @progbits
