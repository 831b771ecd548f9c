/* Builds of one function for several machines, among which glibc chooses when it loads the module. */
#ifndef FEDAT_MACHINES_H
#define FEDAT_MACHINES_H

/* `BUILT_FOR("avx2")` before a function: once more for AVX2, where compiler and C library can do that;
 * `SEVERAL_BUILDS` says whether they can.
 */
#if defined __x86_64__ && defined __GLIBC__ && defined __has_attribute
#if __has_attribute(target_clones)
#define BUILT_FOR(...) __attribute__((target_clones(__VA_ARGS__, "default")))
#define SEVERAL_BUILDS 1
#endif
#endif
#ifndef BUILT_FOR
#define BUILT_FOR(...)
#define SEVERAL_BUILDS 0
#endif

#endif
